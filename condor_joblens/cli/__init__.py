"""What a person types: `joblens ...`."""
