"""What a run tells: log lines, progress."""
