"""The broker process of ``mqcore.testing``: apart from it, so that starting a broker does not import the client."""
