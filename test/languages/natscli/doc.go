// Package natscli is nothing but a module with the nats command as a tool, which the agents in shell are made with: what that
// requires is required by no other module.
package natscli
