"""StreamGraphs: graphs under a schedule, as nodes with domains and channels with lifetimes."""

from dataflow.streams.derive import connected, stream
from dataflow.streams.edge import Edge, StreamGraph
from dataflow.streams.node import StreamNode

__all__ = ["Edge", "StreamGraph", "StreamNode", "connected", "stream"]
