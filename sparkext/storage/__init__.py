"""Files that workers share: containers with checksums, publication by rename, paced writes, spilled data."""
