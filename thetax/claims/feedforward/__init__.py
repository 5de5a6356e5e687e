"""Chapter 2, feed-forward networks: regression, layers, residual connections, approximation, linear regions."""
