"""Logs of another shape, brought into the contract through a mapping file (`docs/import.md`)."""
