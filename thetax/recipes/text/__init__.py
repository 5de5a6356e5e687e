"""Recipes for text: language models and encoders."""
