"""Pictures: pycaffe's io, Classifier and Detector, and how a picture becomes a net's input."""
