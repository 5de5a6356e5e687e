"""Lecture 1, introduction: linear maps, autoencoders, deep linear networks, ridge functions, the first network."""
