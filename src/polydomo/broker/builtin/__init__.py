"""The services that the broker answers itself."""
