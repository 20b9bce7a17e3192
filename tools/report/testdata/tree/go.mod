module example.test/tree

go 1.26.0

require (
	example.org/direct v1.0.0
	example.org/other v1.0.0
	example.org/indirect v1.0.0 // indirect
)
