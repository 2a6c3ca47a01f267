include $(sort $(wildcard $(BR2_EXTERNAL_HOLDFAST_PATH)/package/*/*.mk))
