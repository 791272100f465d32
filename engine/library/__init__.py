"""Models on this machine and on hubs: found, downloaded, imported, moved; where files are."""
