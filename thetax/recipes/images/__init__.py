"""Recipes for images: classifiers of handwritten digits and small photographs."""
