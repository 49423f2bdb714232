"""The catalog of services over DBP."""
