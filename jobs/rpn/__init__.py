"""Python layers of Faster R-CNN's and R-FCN's prototxts, which name their modules rpn.NAME."""
