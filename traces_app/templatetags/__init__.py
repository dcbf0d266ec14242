"""Template tags of pages whose admins know no traces."""
