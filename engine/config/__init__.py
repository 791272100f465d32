"""What config.json says, checked: a model's shape, its raw fields, its recurrent states."""
