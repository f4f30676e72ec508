"""ID embedding tables, their sharding, and the lookup seam."""
