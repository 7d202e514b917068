"""What every process needs: configuration, log, privilege, errors, redaction."""
