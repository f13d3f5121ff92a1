"""Files: weights, snapshots, and how they are written."""
