"""HTTP shared by the REST views: request bodies, responses, filters and their schemas."""
