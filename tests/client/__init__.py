"""What the documents tell users to type, typed."""
