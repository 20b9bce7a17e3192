// Package languages holds the examples of agents in other languages to the rules of the protocol: it starts them as their
// README says and plays duly conformance against them. It is a module of its own, because what it starts is not Go.
package languages
