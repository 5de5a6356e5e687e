"""Recipes for sequences of numbers and symbols."""
