"""Where logs come from: each source writes days of the log contract with `trainer.windows.logs.write_day`."""
