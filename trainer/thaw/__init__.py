"""When tables adapt (schedule), by which named arm, and what becomes of their optimizer state."""
