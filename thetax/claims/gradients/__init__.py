"""Chapter 3, gradient-based learning: backpropagation, descent and its rates, momentum, adaptive steps, chance."""
