"""What a prepared day looks like, what is odd about it beside the days before it, and the page that shows it."""
