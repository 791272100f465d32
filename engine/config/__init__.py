"""The contents of config.json, checked: a model's shape, its raw fields, its recurrent states."""
