"""Sentences to vectors: layers over packed tokens, and the encoder that puts text in front of them."""
