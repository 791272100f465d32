"""What every room may use: errors, devices, files read with care, folders, sizes, the installation, fetching/."""
