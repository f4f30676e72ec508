"""What measures: each module prints one JSON object on its last line and writes it to ``benchmarks/results``."""
