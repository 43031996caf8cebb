"""The platform as its users meet it: through the SDK and over HTTP, with real sandboxes."""
