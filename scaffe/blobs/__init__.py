"""Blobs: the parameters of a net in one array, what fills, shares and holds blobs."""
