"""What several commands share: options, output, exit statuses."""
