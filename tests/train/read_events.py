# SPDX-License-Identifier: MIT
"""Prints as JSON what TensorBoard itself reads in a folder of event files."""
import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

reader = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "images": 0})
reader.Reload()
tags = reader.Tags()
print("\n" + json.dumps({
    "scalars": {t: [[e.step, e.value, e.wall_time] for e in reader.Scalars(t)]
                for t in tags["scalars"]},
    "images": {t: [[e.step, e.width, e.height, e.encoded_image_string[:4].hex()]
                   for e in reader.Images(t)] for t in tags["images"]}}))
