"""What others ask of joblensd over its socket."""
