"""Where frames come from: videos on disk, the frame store, pairs of frames."""
