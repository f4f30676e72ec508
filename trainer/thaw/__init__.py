"""When tables adapt (schedule), through what (gate), by which named arm, and what watches over them (canary)."""
