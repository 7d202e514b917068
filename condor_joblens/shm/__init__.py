"""What joblensd shares with whoever may read: rows (a double buffer) and events (a ring). Knows bytes."""
