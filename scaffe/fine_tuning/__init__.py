"""Fine-tuning: from a folder of pictures to a net that classifies them, all in Caffe's own files."""
