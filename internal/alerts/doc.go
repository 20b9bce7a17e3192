// Package alerts delivers the alerts of all nodes to people: by webhook and by mail, through channels that operators
// configure.
//
// Alerts are stored in a stream by the nodes that raise them. One [Sender], that of the leading supervisor, reads them,
// makes one alert of what several nodes tell of the same trouble, and hands it to every channel that wants it. An alert
// is done with when each of these has taken it, or has refused it for longer than [Config].RetryFor: so it is delivered
// at least once, also when the sender is killed, and twice with the same id at worst.
//
// A channel is a document of the setting store under "alerts/channels/". It names its secrets by file or environment, or
// they are in a document of their own, which [Book] writes and no face shows.
package alerts
