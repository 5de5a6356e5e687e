"""Recipes for sets and point clouds."""
