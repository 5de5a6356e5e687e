"""Chapter 1, connectionism: threshold units, the perceptron, Cover's count, associative memories."""
