"""What a run reports: log lines, progress, activity records, spans, waiting times. Imports no net and no World."""
