"""From a folder of raw logs to windows of prepared, immutable days. No torch here."""
