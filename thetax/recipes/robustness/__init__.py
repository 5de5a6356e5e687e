"""Recipes of chapter 13: attacks, robust training and certificates."""
