"""Learning encoders from pairs: mega-batches, the optimizer, the loop"""
