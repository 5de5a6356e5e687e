"""Lecture 10, fundamentals: shallow and deep networks, descent, back-propagation, regularisation, exercises."""
