// Package helm checks the chart deploy/helm/duly: helm's own library lints and renders it under several sets of values,
// every object is decoded strictly into Kubernetes' types, and what the nodes are told is parsed and validated by the
// configuration that they have. No cluster is asked.
//
// It is a module of its own, so that the libraries it needs are in no user's module graph, and it has no code outside
// its tests.
package helm
