"""The wiring doctor while the robot runs: finds the wrong line, and corrects it if that is allowed.

`watch` keeps the last ticks (control steps) and says when the monitor has found the readings
improbable for half a second and no move of signals explains them. `examinations` then lets
`process`, a process of its own, examine the last ten seconds. `running_doctor` announces a mistake
that successive examinations find: by one line in the log, and in the diagnostics until the
readings are probable again. `corrections` corrects mistakes in scale, sign and offset of sensors
while the robot runs: at once (parameter `monitor_corrects`), or by a service. A correction lasts
until it is undone, until another topic or field feeds the channel, or until the wiring file is read
again. A motor is never corrected.
"""
