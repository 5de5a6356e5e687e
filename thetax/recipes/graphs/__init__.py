"""Jobs on graphs: node classification, graph classification, and the depth of graph networks."""
